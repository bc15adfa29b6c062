package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrInUse marks errors of a folder that another process holds.
var ErrInUse = errors.New("folder is in use")

// lockFileName is the file in a locked folder. It stays after unlocking: removing it would let two
// processes lock two files of one name.
const lockFileName = "lock"

// DirLock is a folder held by this process. The system drops it when the process ends, however it ends, so
// a lock file that is merely there locks nothing.
type DirLock struct{ f *os.File }

// LockDir makes the folder if needed and locks it for this process. A second holder, in this process or
// another, gets an error marked ErrInUse that names folder and process id.
func LockDir(dir string) (*DirLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", dir, notWritable(err))
	}
	path := filepath.Join(dir, lockFileName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", notWritable(err))
	}
	held, err := lockFile(f)
	if held {
		holder := "another process"
		if b, rerr := io.ReadAll(io.LimitReader(f, 32)); rerr == nil {
			if pid, perr := strconv.Atoi(strings.TrimSpace(string(b))); perr == nil {
				holder = fmt.Sprintf("process %d", pid)
			}
		}
		return nil, errors.Join(fmt.Errorf("%w: %s is held by %s; stop it, or choose another folder", ErrInUse, dir, holder), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if err := errors.Join(f.Truncate(0), writeAt0(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("write process id into %s: %w", path, err), f.Close())
	}
	return &DirLock{f}, nil
}

// lockWithin is LockDir, trying again for a while.
func lockWithin(ctx context.Context, dir string, wait time.Duration) (*DirLock, error) {
	for until := time.Now().Add(wait); ; {
		l, err := LockDir(dir)
		if !errors.Is(err, ErrInUse) || !time.Now().Before(until) {
			return l, err
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return nil, err
		}
	}
}

func writeAt0(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// Unlock gives the folder back.
func (l *DirLock) Unlock() error {
	if err := l.f.Close(); err != nil {
		return fmt.Errorf("unlock %s: %w", filepath.Dir(l.f.Name()), err)
	}
	return nil
}

// notWritable says what to do where a folder may not be written to.
func notWritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; give this user the right to write there, or choose another folder with --data", err)
	}
	return err
}
