//go:build !linux

package testcluster

import "os/exec"

// endWithParent: only Linux offers it; elsewhere a test that is killed leaves its Kafka running.
func endWithParent(*exec.Cmd) {}
