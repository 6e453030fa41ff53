package initramfs

// Essence is what a Memory keeps of an image's names.
var Essence = essence
