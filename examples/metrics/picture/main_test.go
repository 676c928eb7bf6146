package main

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPictureDrawsEveryPanel(t *testing.T) {
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := r.FormValue("start")
		_, _ = io.WriteString(w, `{"data":{"result":[{"metric":{"outcome":"<limited>"},"values":[[`+start+`,"0.5"]]}]}}`)
	}))
	defer prometheus.Close()
	var svg strings.Builder
	if err := run(&svg, "../dashboard.json", prometheus.Listener.Addr().String(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(svg.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"Decisions by outcome", "&lt;limited&gt;", "Share refused", "50 %", "Keys in memory"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("there is no %q in the picture", want)
		}
	}
}

func TestPictureReportsThePrometheusError(t *testing.T) {
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"error":"no such thing"}`)
	}))
	defer prometheus.Close()
	err := run(io.Discard, "../dashboard.json", prometheus.Listener.Addr().String(), time.Minute)
	if err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Error(err)
	}
}
