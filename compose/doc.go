// Package compose holds deployments for Docker Compose and the test of their
// files. It owns the files; it may touch nothing; no code enters it.
package compose
