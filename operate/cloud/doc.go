// Package cloud has the use cases that join OpenStack's APIs with the configuration, the hardware
// or the databases of compute nodes: changes of flavors and images with their journal and undo,
// flavors that hosts offer, and tests of flavors. Each is Observe → Plan → Apply: values that a
// command prints, and asks about between the last two.
package cloud
