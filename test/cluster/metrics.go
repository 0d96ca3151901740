package cluster

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric returns the sum of a metric's values.
func (w *Cluster) Metric(name string) float64 {
	w.Helper()
	collected, err := w.Registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range collected {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	w.Fatalf("no metric %s", name)
	return 0
}

// Metrics returns metrics by their names and the values of their labels. A histogram's value is the number of
// observations.
func Metrics(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	collected, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range collected {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil {
				got[name+" sum"] = h.GetSampleSum()
			}
		}
	}
	return got
}

// WantMetrics compares metrics, by their names and the values of their labels.
func WantMetrics(t testing.TB, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	got := Metrics(t, registry)
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %s, not %v", name, fmt.Sprint(v), value)
		}
	}
}
