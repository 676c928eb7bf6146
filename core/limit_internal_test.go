package core

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Divide and OnlyFailures derive a limit anew. Each field of its rule is then computed again or kept.
func TestDerivedComputesOrKeepsEachField(t *testing.T) {
	computed := strings.Fields("Kind Max Hash Failures Prepay Period Calendar Emission Burst Start Parts ForgetAfter Ban")
	l := SlidingWindow(5, time.Minute)
	rule := reflect.ValueOf(&l.rule).Elem()
	for _, field := range reflect.VisibleFields(rule.Type()) {
		v := rule.FieldByIndex(field.Index)
		if !field.IsExported() || slices.Contains(computed, field.Name) {
			continue
		}
		switch {
		case v.CanInt():
			v.SetInt(7)
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		}
		derived := l.derived()
		if got := reflect.ValueOf(derived.rule).FieldByIndex(field.Index); v.IsZero() || !got.Equal(v) {
			t.Errorf("%s is %v, and %v in a derived limit", field.Name, v, got)
		}
	}
}
