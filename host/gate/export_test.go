package gate

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{AtBoot, Now, Removed, Making, Returned, Role} }
