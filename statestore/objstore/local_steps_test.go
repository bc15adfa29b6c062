package objstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

var tempName = regexp.MustCompile(`\.varve-tmp-[A-Z0-9]+`)

// TestLocalSteps writes down, in testdata/local_steps, which steps a local
// store takes on its file system, in which order, and what it does when one of
// them fails. Commands take a key, the data as input, and
//
//	fail=<n>    the n-th step fails
//	error=…     with nospace, quota or io (default)
func TestLocalSteps(t *testing.T) {
	var (
		disk  *objstoretest.Disk
		steps *objstoretest.Steps
		store objstore.Store
	)
	open := func(opts ...objstore.Option) error {
		var err error
		steps = objstoretest.NewSteps(disk, "/mnt")
		store, err = objstore.Open(ctx, "/mnt/lake", append(opts, objstore.WithFileSystem(steps))...)
		return err
	}
	datadriven.RunTest(t, "testdata/local_steps", func(t *testing.T, d *datadriven.TestData) string {
		var key, errName string
		var fail int
		d.MaybeScanArgs(t, "key", &key)
		d.MaybeScanArgs(t, "error", &errName)
		if d.MaybeScanArgs(t, "fail", &fail) {
			stepErr := syscall.EIO
			switch errName {
			case "nospace":
				stepErr = syscall.ENOSPC
			case "quota":
				stepErr = syscall.EDQUOT
			}
			steps.FailAt(fail, stepErr)
		}
		var err error
		data := []byte(d.Input)
		switch d.Cmd {
		case "new-disk":
			disk = objstoretest.NewDisk()
			if err := disk.Mkdir("/mnt"); err != nil {
				t.Fatal(err)
			}
			err = open()
		case "restart":
			disk = disk.LosePower(100, 0)
			err = open()
		case "look":
			err = open(objstore.KeepTemporaries())
		case "create":
			err = store.Create(ctx, key, data)
		case "create-exclusive":
			err = store.CreateExclusive(ctx, key, data)
		case "replace":
			err = store.Replace(ctx, key, data)
		case "write":
			var w objstore.Writer
			if w, err = store.Writer(ctx, key); err == nil {
				for _, line := range strings.Split(d.Input, "\n") {
					if _, err = w.Write([]byte(line)); err != nil {
						break
					}
				}
				if err == nil {
					err = w.Commit()
				}
				err = errors.Join(err, w.Abort())
			}
		case "delete":
			err = store.Delete(ctx, strings.Split(key, ",")...)
		case "remove-folder":
			err = disk.Remove("/mnt/lake/" + key)
		case "list":
			var b strings.Builder
			err = store.List(ctx, "", func(i objstore.Info) error {
				_, err := fmt.Fprintf(&b, "%s %d\n", i.Key, i.Size)
				return err
			})
			if err == nil {
				return b.String()
			}
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		steps.FailAt(0, nil)
		var b strings.Builder
		for _, s := range steps.Take() {
			fmt.Fprintln(&b, s)
		}
		switch {
		case err == nil:
			b.WriteString("ok\n")
		case errors.Is(err, objstore.ErrNoSpace):
			b.WriteString("no space: " + tempName.ReplaceAllString(err.Error(), ".varve-tmp-*") + "\n")
		case errors.Is(err, objstore.ErrExists):
			b.WriteString("exists\n")
		default:
			b.WriteString("error: " + tempName.ReplaceAllString(err.Error(), ".varve-tmp-*") + "\n")
		}
		return b.String()
	})
}
