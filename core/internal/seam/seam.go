// Package seam has what package core tells package metrics and does not export.
package seam

// Rehearsed returns which of a charge's limits, counted from 0, the reason of a decision
// speaks of if that is ReasonShadowed or ReasonNear; 0, which no rehearsed limit is, if it
// is none of them. decision is a *core.Decision. Package core sets it.
var Rehearsed func(decision any) int
