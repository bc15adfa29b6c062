// Package puffin owns the bytes of Puffin containers (V2, V3): the writer of the
// vectors of one attempt, and a reader of any writer's file.
//
// A file is: PFA1 · blobs · PFA1 · footer JSON · its size (i32 LE) · 4 flag bytes ·
// PFA1. The writer's bytes depend on its input alone: no clock, no version of this
// program, no map order. The footer's JSON is written as Java writes it: the same
// names, order and escapes, no white space.
//
// It may touch readers and writers that the caller hands in, and package dv for the
// vectors inside. Object stores, paths of Puffins, manifests never enter it.
package puffin
