package host

import "slices"

// Value returns what p points to, or the zero value for nil.
func Value[T any](p *T) (v T) { return Or(p, v) }

// Or returns what p points to, or another value for nil.
func Or[T any](p *T, other T) T {
	if p != nil {
		return *p
	}
	return other
}

// Map returns what of makes of each value of a list, nil for an empty list.
func Map[T, U any](list []T, of func(T) U) (made []U) {
	for _, v := range list {
		made = append(made, of(v))
	}
	return made
}

// FlatMap returns what of makes of each value of a list, one after another.
func FlatMap[T, U any](list []T, of func(T) []U) (made []U) {
	for _, v := range list {
		made = append(made, of(v)...)
	}
	return made
}

// Filter returns the values of a list that keep accepts, nil for none.
func Filter[S ~[]T, T any](list S, keep func(T) bool) (kept S) {
	for _, v := range list {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// Reversed returns a copy of a list in reverse order.
func Reversed[S ~[]T, T any](list S) S {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// Set returns the values of a list as a set.
func Set[T comparable](list []T) map[T]bool {
	return By(list, func(v T) (T, bool) { return v, true })
}

// By returns a map of what of makes of each value of a list. Later values replace earlier ones.
func By[T any, K comparable, V any](list []T, of func(T) (K, V)) map[K]V {
	made := make(map[K]V, len(list))
	for _, v := range list {
		key, value := of(v)
		made[key] = value
	}
	return made
}

// Union returns a list with those of more that are not in it, each once, in their order.
func Union[T comparable](list []T, more ...T) []T {
	for _, v := range more {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
