// Package service resolves the address or the name of a Service to the endpoints that a connection to it may reach.
//
//	target, err := network.Find("svc/web.shop", "80") // or "10.96.0.10", or a node's address and a node port
//	target.Endpoints                                  // shop/web-1 tcp/8080, shop/web-2 tcp/8080
//
// No verdict depends on it: policies apply to the endpoints. It reads what a cluster's objects have, and no traffic.
package service
