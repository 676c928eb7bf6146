package metrics

import "github.com/tailcut/tailcut/core/plans"

// Plans describes the document of package plans that is in force. It is the zero value if m watches
// no plans.
type Plans struct {
	Generation int    // the number of the document: see plans.Generation
	Version    string // the version of the document, which is the same on all replicas with the same document
	Rejected   uint64 // how often a document was not put in force because of an error
}

// WatchPlans adds a description of the document in force in p to each [Snapshot]. It panics if p is
// nil, or if m watches plans already.
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

// inForce describes the document in force in the plans that m watches.
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
