package metrics_test

import (
	"testing"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/plans"
)

func TestThePlansInForce(t *testing.T) {
	m := metrics.New(nil)
	if s := m.Snapshot(); s.Plans != (metrics.Plans{}) {
		t.Errorf("without plans: %+v", s.Plans)
	}
	document := []byte(`{"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}}`)
	p, err := plans.New(memorystore.New(nil), document)
	if err != nil {
		t.Fatal(err)
	}
	m.WatchPlans(p)
	if err := p.Update([]byte("{")); err == nil {
		t.Error("a broken document is no error")
	}
	if err := p.Update(append(document, '\n')); err != nil {
		t.Error(err)
	}
	if got, want := m.Snapshot().Plans, (metrics.Plans{Generation: 2, Version: p.Generation().Version, Rejected: 1}); got != want || got.Version == "" {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, p := range map[string]*plans.Plans{"nil": nil, "a second one": p} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			m.WatchPlans(p)
		}()
	}
}
