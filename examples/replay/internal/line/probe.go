package line

// Requests of health checks, which a load balancer or an orchestrator sends for ever.

import "bytes"

// IsProbe reports whether a path without a query is one that health checks use, such as /healthz.
func IsProbe(path []byte) bool {
	last := path[bytes.LastIndexByte(path, '/')+1:]
	if len(last) > len("healthcheck")+1 {
		return false
	}
	switch string(last) {
	case "health", "healthz", "healthy", "healthcheck", "health-check", "health_check", "live", "livez", "liveness", "ready", "readyz", "readiness", "ping", "heartbeat":
		return true
	}
	return false
}
