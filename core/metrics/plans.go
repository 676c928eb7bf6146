package metrics

import "github.com/tailcut/tailcut/core/plans"

// Plans names the document of plans that is in force. The zero value means that no plans are
// watched.
type Plans struct {
	Generation int    // see plans.Generation
	Version    string // of the document: the same on all replicas that have the same one
	Rejected   uint64 // documents that were not put in force because of an error
}

// WatchPlans adds the document that is in force in p to each [Snapshot]. It panics if p is nil, or if plans
// are watched already.
func (m *Metrics) WatchPlans(p *plans.Plans) {
	if p == nil {
		panic("metrics: WatchPlans: the plans are nil; make them with plans.New")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plans != nil {
		panic("metrics: WatchPlans: plans are watched already; watch one document")
	}
	m.plans = p
}

// inForce is the state of the plans that are watched.
func (m *Metrics) inForce() Plans {
	m.mu.Lock()
	p := m.plans
	m.mu.Unlock()
	if p == nil {
		return Plans{}
	}
	g := p.Generation()
	return Plans{g.Number, g.Version, p.Rejected()}
}
