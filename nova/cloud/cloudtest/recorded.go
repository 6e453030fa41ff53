package cloudtest

import (
	_ "embed"
	"sync"
)

// recorded are the answers of a real Placement, which integration/nova/python/candidates.py
// records: TestPlacement in integration/nova compares them with it.
//
//go:embed testdata/placement.jsonl
var recorded []byte

var standardNames = sync.OnceValue(readNames)
