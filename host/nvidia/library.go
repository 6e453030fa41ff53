package nvidia

func (r *reader) libraries() []Library { return nil }
