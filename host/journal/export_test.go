package journal

// Write writes an entry as a run does before it is killed.
func (j *Journal) Write(e Entry) error {
	return j.write(e)
}
