package topology

import (
	"time"

	"github.com/varve-io/varve/schemas/record"
)

const (
	// leaveMin and leaveMax bound how long the inputs of a job that was given up are in no
	// plan: a file that cannot be read would else be in every one, and fail its company.
	leaveMin = time.Hour
	leaveMax = 24 * time.Hour
	// maxFailedInputs bounds how many files are left alone, maxPlannedJobs how many jobs
	// are remembered: of those beyond, nothing is.
	maxFailedInputs = 1 << 16
	maxPlannedJobs  = 1 << 14
)

// failedInputs remembers what this process planned for a table, and the inputs of jobs
// that were given up. Another process, or the next one, finds out by itself.
type failedInputs struct {
	jobs  map[record.JobID][]uint64 // attempt 0: whichever
	files map[uint64]leftAlone
	now   time.Time // of the look under way
}

type leftAlone struct {
	until time.Time
	wait  time.Duration
}

// leave says whether a file is to be in no plan.
func (f *failedInputs) leave(file uint64) bool {
	x, ok := f.files[file]
	return ok && f.now.Before(x.until)
}

// over takes a job out that has ended; failed: its inputs are left alone for a while.
func (f *failedInputs) over(id record.JobID, failed bool) {
	if failed {
		if f.files == nil {
			f.files = map[uint64]leftAlone{}
		}
		for _, file := range f.jobs[id] {
			x, known := f.files[file]
			if !known && len(f.files) >= maxFailedInputs {
				continue
			}
			x.wait = min(max(2*x.wait, leaveMin), leaveMax)
			x.until = f.now.Add(x.wait)
			f.files[file] = x
		}
	} else {
		for _, file := range f.jobs[id] {
			delete(f.files, file)
		}
	}
	delete(f.jobs, id)
}

// notePlanned remembers the jobs of a PlanJobs that the state made of it.
func (w *stateWorker) notePlanned(table int64, f *failedInputs, offset int64, items []record.PlanItem) error {
	if f.jobs == nil {
		f.jobs = map[record.JobID][]uint64{}
	}
	return w.read(func() error {
		for i := range items {
			if len(f.jobs) >= maxPlannedJobs {
				return nil
			}
			open, _, err := w.store.JobState(table, offset, int32(i))
			if err != nil {
				return err
			}
			if !open {
				continue // rejected, or over already
			}
			var files []uint64
			for _, in := range items[i].Inputs {
				files = append(files, in.File)
			}
			f.jobs[record.JobID{Plan: offset, Item: int32(i)}] = files
		}
		return nil
	})
}

// noteEnded forgets the remembered jobs that are over, and has the inputs of those left
// alone that were not completed.
func (w *stateWorker) noteEnded(table int64, f *failedInputs, now time.Time) error {
	f.now = now
	for file, x := range f.files {
		if now.Sub(x.until) > leaveMax {
			delete(f.files, file) // rewritten since, or gone
		}
	}
	return w.read(func() error {
		for id := range f.jobs {
			open, done, err := w.store.JobState(table, id.Plan, id.Item)
			if err != nil {
				return err
			}
			if !open {
				f.over(id, !done)
			}
		}
		return nil
	})
}
