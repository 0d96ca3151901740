package findings

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"
)

const (
	tool       = "weave-npc"
	repository = "https://github.com/weave-npc/weave-npc"
	// sourceRoot stands for the working directory in paths.
	sourceRoot = "%SRCROOT%"
)

// The types are the used ones of SARIF 2.1.0, with its names.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool               sarifTool               `json:"tool"`
		Invocations        []sarifInvocation       `json:"invocations"`
		OriginalURIBaseIDs map[string]sarifBaseURI `json:"originalUriBaseIds"`
		ColumnKind         string                  `json:"columnKind"`
		Results            []sarifResult           `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID       string     `json:"id"`
		Short    sarifText  `json:"shortDescription"`
		Full     *sarifText `json:"fullDescription,omitempty"`
		Help     *sarifText `json:"help,omitempty"`
		HelpURI  string     `json:"helpUri,omitempty"`
		Defaults struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifBaseURI struct {
		Description sarifText `json:"description"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI    string `json:"uri"`
			BaseID string `json:"uriBaseId,omitempty"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Full string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// writeSARIF writes one run of SARIF 2.1.0. Paths below the working directory are relative to it.
func (r *Report) writeSARIF(out *bytes.Buffer, o Options) error {
	run := sarifRun{ColumnKind: "utf16CodeUnits", Results: []sarifResult{},
		Invocations:        []sarifInvocation{{Successful: true}},
		OriginalURIBaseIDs: map[string]sarifBaseURI{sourceRoot: {sarifText{"the working directory of weave-npc"}}}}
	run.Tool.Driver = sarifDriver{Name: tool, Version: clean(r.Version), InformationURI: repository,
		Rules: []sarifRule{}}
	index := map[string]int{}
	for i, rule := range r.allRules() {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule.sarif())
	}
	selected, omitted := r.selected(o.Limit)
	for _, f := range selected {
		run.Results = append(run.Results, f.sarif(index[f.Rule], o))
	}
	if omitted > 0 {
		run.Invocations[0].Notifications = []sarifNotification{
			{"note", sarifText{"the limit leaves out " + more(omitted)}}}
	}
	return encode(out, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{run}})
}

func (rule *RuleInfo) sarif() sarifRule {
	out := sarifRule{ID: rule.ID, Short: sarifText{plain(rule.Short)}}
	out.Defaults.Level = rule.Level.String()
	if rule.Help != "" {
		text := sarifText{plain(strings.Join(cleanLines(rule.Help), "\n"))}
		out.Full, out.Help = &text, &text
	}
	if rule.Doc != "" {
		out.HelpURI = repository + "/blob/main/" + rule.Doc
	}
	return out
}

// plain returns a text without the links of SARIF.
func plain(text string) string { return strings.ReplaceAll(text, "](", "] (") }

func (f *Finding) sarif(rule int, o Options) sarifResult {
	text := strings.Join(append([]string{f.text()}, cleanLines(f.Detail)...), "\n")
	out := sarifResult{RuleID: f.Rule, RuleIndex: rule, Level: f.Level.String(), Message: sarifText{plain(text)},
		Fingerprints: map[string]string{"finding/v1": f.fingerprint(o)}}
	var l sarifLocation
	if isFile(f.File) {
		l.Physical = &sarifPhysical{}
		l.Physical.Artifact.URI, l.Physical.Artifact.BaseID = o.uri(f.File)
		if f.Line > 0 {
			l.Physical.Region = &sarifRegion{f.Line}
		}
	}
	if about := clean(f.Object.String()); about != "" {
		l.Logical = []sarifLogical{{Name: clean(f.Object.Name), Full: about, Kind: "object"}}
	}
	if l.Physical != nil || l.Logical != nil {
		out.Locations = []sarifLocation{l}
	}
	return out
}

// fingerprint returns a text that stays the same while lines move.
func (f *Finding) fingerprint(o Options) string {
	parts := []string{f.Rule, o.relative(f.File), f.Object.String(), f.Message}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// uri returns the URI of a file, and what it is relative to; empty if it is absolute.
func (o Options) uri(path string) (uri, base string) {
	path = o.relative(path)
	if filepath.IsAbs(filepath.FromSlash(path)) {
		if !strings.HasPrefix(path, "/") { // a drive of Windows
			path = "/" + path
		}
		return (&url.URL{Scheme: "file", Path: path}).String(), ""
	}
	// Escaped by segments: a colon in the first one would end a scheme.
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.ReplaceAll(strings.Join(segments, "/"), ":", "%3A"), sourceRoot
}
