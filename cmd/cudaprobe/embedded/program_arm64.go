//go:build cudaprobe

package embedded

import _ "embed"

//go:embed cudaprobe-arm64.gz
var compressed []byte
