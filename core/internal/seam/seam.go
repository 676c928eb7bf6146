// Package seam lets package metrics read a field of a decision that core does not export.
package seam

// Rehearsed returns the index of the rehearsed limit that a decision's reason is about, if
// the reason is ReasonShadowed or ReasonNear. Otherwise it returns 0, which no rehearsed limit
// has. decision is a *core.Decision. Package core sets the variable.
var Rehearsed func(decision any) int
