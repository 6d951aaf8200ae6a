package kubelease_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkUncontended has a lock and its release, which are a patch each, take turns with two updates of a Lease, which is what client-go's election
// sends, so that both meet the machine as it is. It reports medians.
func BenchmarkUncontended(b *testing.B) {
	srv := start(b)
	locks, leases := process(b, srv), connect(b, srv).CoordinationV1().Leases(namespace)
	holder := strings.Repeat("x", 300) // as long as a record
	bare, err := leases.Create(b.Context(), &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: "bare"}, Spec: coordination.LeaseSpec{HolderIdentity: &holder}}, meta.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	update := func() {
		now := meta.NowMicro()
		bare.Spec.RenewTime = &now
		if bare, err = leases.Update(b.Context(), bare, meta.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	patch := func() {
		text, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": meta.NowMicro()}})
		if err == nil {
			_, err = leases.Patch(b.Context(), "bare", types.MergePatchType, text, meta.PatchOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	var took [3][]time.Duration
	for b.Loop() {
		for i, do := range []func(){func() { unlock(b, lock(b, locks, "bench")) }, func() { update(); update() }, func() { patch(); patch() }} {
			began := time.Now()
			do()
			took[i] = append(took[i], time.Since(began))
			if i == 2 {
				bare, err = leases.Get(b.Context(), "bare", meta.GetOptions{})
			}
		}
	}
	for i, unit := range []string{"lock-µs", "two-updates-µs", "two-patches-µs"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), unit)
	}
}
