//go:build azure

package main

import _ "github.com/varve-io/varve/statestore/objstore/azstore" // azblob://
