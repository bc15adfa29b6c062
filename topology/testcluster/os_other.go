//go:build !linux

package testcluster

import (
	"errors"
	"os/exec"
)

// endWithParent: only Linux offers it; elsewhere a test that is killed leaves its Kafka running.
func endWithParent(*exec.Cmd) {}

// memoryDir: elsewhere there is none by a known name.
func memoryDir(uint64) string { return "" }

// runAs and giveTo: elsewhere tests are not run as root.
func runAs(string, *exec.Cmd) {}

func giveTo(string, string) error { return errors.New("do not run this as root") }
