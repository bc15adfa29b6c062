//go:build !linux

package testcluster

import "os/exec"

// endWithParent: only Linux offers it; elsewhere a test that is killed leaves its Kafka running.
func endWithParent(*exec.Cmd) {}

// memoryDir: elsewhere there is none by a known name.
func memoryDir(uint64) string { return "" }
