// Package httpserver serves metrics, health, readiness and profiles over HTTP.
//
//	GET /metrics   the registry, collected for one scrape at a time
//	GET /healthz   ok while the process runs
//	GET /readyz    ok, or 503 with the reason
//
// Requests never wait long for the locks of what they report on (latest, prompt), and are bounded in number:
// enforcement must not notice them. The package must not know where metrics and readiness come from.
package httpserver
