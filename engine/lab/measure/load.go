package measure

import (
	"slices"
	"sync"
	"time"
)

// Times are how long each of many operations took, the shortest first.
type Times []time.Duration

// At is the time that a part of all operations did not exceed: At(0.5) is the median.
func (t Times) At(part float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(len(t)-1, int(part*float64(len(t))))]
}

// Loop has workers repeat an operation for a while, each as soon as its last one is done. It
// returns how many were done in a second, and how long they took.
func Loop(workers int, d time.Duration, do func(worker int)) (perSecond float64, times Times) {
	var mu sync.Mutex
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			var mine Times
			for time.Since(began) < d {
				start := time.Now()
				do(w)
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
		})
	}
	group.Wait()
	perSecond = float64(len(times)) / time.Since(began).Seconds()
	slices.Sort(times)
	return perSecond, times
}

// Schedule begins an operation rate times a second for a while, whether those before it are
// done or not: those who use a service do not wait for each other. A time counts from when
// the operation was due.
func Schedule(rate float64, d time.Duration, do func()) (times Times) {
	times = make(Times, int(rate*d.Seconds()))
	var group sync.WaitGroup
	began := time.Now()
	for i := range times {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		group.Go(func() {
			do()
			times[i] = time.Since(due)
		})
	}
	group.Wait()
	slices.Sort(times)
	return times
}
