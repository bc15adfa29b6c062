package readers

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed TrinoReader.java
var trinoProgram []byte

// trinoCommand runs Trino in a JVM of its own, from the source of its driver.
func trinoCommand() (*exec.Cmd, error) {
	dir := FolderOf(Trino)
	java, err := os.ReadFile(filepath.Join(dir, "java.txt")) // install-slow.sh found it
	if err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "TrinoReader.java")
	if err := os.WriteFile(source, trinoProgram, 0o644); err != nil {
		return nil, err
	}
	return exec.Command(strings.TrimSpace(string(java)), "-Xmx1500m", "-Duser.timezone=UTC", "--add-modules", "jdk.incubator.vector",
		"--sun-misc-unsafe-memory-access=allow", "-cp", filepath.Join(dir, "lib", "*"), source), nil
}
