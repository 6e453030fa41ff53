package host

import (
	"slices"
	"strconv"
	"testing"
)

func TestLists(t *testing.T) {
	if got := Map([]int{1, 2}, strconv.Itoa); !slices.Equal(got, []string{"1", "2"}) || Map(nil, strconv.Itoa) != nil {
		t.Errorf("Map = %q", got)
	}
	if n := 1; Value(&n) != 1 || Value[int](nil) != 0 {
		t.Errorf("Value = %d", Value(&n))
	}
	odd := func(n int) bool { return n%2 == 1 }
	if got := Filter([]int{1, 2, 3}, odd); !slices.Equal(got, []int{1, 3}) || Filter([]int{2}, odd) != nil {
		t.Errorf("Filter = %v", got)
	}
	list := []int{1, 2}
	if got := Reversed(list); !slices.Equal(got, []int{2, 1}) || list[0] != 1 {
		t.Errorf("Reversed = %v, of %v", got, list)
	}
	if got := Union([]int{1, 2}, 3, 2, 3); !slices.Equal(got, []int{1, 2, 3}) || Union([]int(nil)) != nil {
		t.Errorf("Union = %v", got)
	}
}
