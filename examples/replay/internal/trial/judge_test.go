package trial_test

// A rule says whether an action at t passes after those that were admitted, and if not how long
// it has to wait.
type rule func(admitted []int64, t int64) (ok bool, wait int64)

// sliding is at most max in a window.
func sliding(max int, period int64) rule {
	return func(admitted []int64, t int64) (bool, int64) {
		var within []int64
		for _, a := range admitted {
			if a > t-period {
				within = append(within, a)
			}
		}
		if len(within) < max {
			return true, 0
		}
		return false, within[len(within)-max] + period - t
	}
}

// leaking is a funnel, whose level is recounted from its start. emission is the time of a unit.
func leaking(capacity int, emission int64) rule {
	return func(admitted []int64, t int64) (bool, int64) {
		level, last := int64(0), int64(0) // in time
		for _, a := range admitted {
			level = max(0, level-(a-last)) + emission
			last = a
		}
		level = max(0, level-(t-last))
		return level+emission <= int64(capacity)*emission, level + emission - int64(capacity)*emission
	}
}

type verdict struct {
	refused, touched int
	longest          int64
	by               map[string]int
}

func judge(users map[string][]int64, pass rule) verdict {
	v := verdict{by: map[string]int{}}
	for u, times := range users {
		var admitted []int64
		for _, t := range times {
			ok, wait := pass(admitted, t)
			if ok {
				admitted = append(admitted, t)
				continue
			}
			v.refused++
			v.by[u]++
			v.longest = max(v.longest, wait)
		}
	}
	v.touched = len(v.by)
	return v
}

// leastNumber is the least number for which a rule touches at most so many users.
func leastNumber(users map[string][]int64, allowed int, of func(n int) rule) int {
	for n := 1; ; n++ {
		if judge(users, of(n)).touched <= allowed {
			return n
		}
	}
}
