// Package planner chooses which data files of a table are rewritten together.
//
// Owns: the strategies, their numbers, the table properties that set them.
// May touch: what it is told of files; it makes items of a PlanJobs.
// Never enters: a clock, the log, the state. What it chooses is a wish: apply
// decides (F1), so a plan made of an old state is rejected item by item.
//
// # Strategies
//
//   - deletes: a file whose dead rows cost readers more than writing it anew costs.
//     Of a file with share d of its rows dead, each reading reads d of its bytes and
//     the vector for nothing; writing it anew reads and writes what lives. It is
//     chosen when so many readings (varve.compaction.reads, 5 by default) would cost
//     more than that: from 28 % on, or earlier where vectors are large.
//   - size-ratio: files of one partition, from the smallest, as long as they together
//     have at least ratio (3) times the bytes of the largest among them, at most batch (12)
//     a job. So a row is written again only when it comes to rest in a file of several
//     times the size, a logarithmic number of times. Files of half the target size
//     and more are left alone.
//   - small-files: files below three quarters of the target size, in the order in
//     which they came, packed towards the target; a job has at least five, or fills a file.
//   - full: all files of a partition.
//
// # The tree of key ranges
//
// A table with varve.tree.split-bytes has its leaves split once the files on them
// have more bytes than that, into leaves of about half of it each. References on
// inner nodes, such as new files on the root, are brought down to the leaves when
// they are as many as a job takes, or a quarter of what splits a leaf. Jobs take
// references of one leaf. No job is planned on a leaf that is to be split: those
// that are open end, then it is.
//
// Jobs are planned, and leaves split, within the hours of varve.compaction.window,
// if the table has any.
//
// All of them take published, free files of one partition. Files whose rows need not
// ascend by the table's key, which another program wrote or a job made of such ones, are
// put together among themselves (F24): with one of them a job's outputs need not ascend
// either. A file whose rows are
// all dead needs no job: the next cut drops it (V7).
package planner
