package main

// atmtools.go: placeholder until merged.

// atmCaller is whom an ATM tool acts as.
type atmCaller struct {
	Identity    string
	AgentID     string
	Team        string
	Owns        func(identity string) bool
	Live        func(identity string) bool
	Correlation string
	Auto        bool
}
