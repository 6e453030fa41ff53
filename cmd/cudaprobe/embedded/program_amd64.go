//go:build cudaprobe

package embedded

import _ "embed"

//go:embed cudaprobe-amd64.gz
var compressed []byte
