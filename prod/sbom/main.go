// Command sbom prints the contents of an image of weave-npc or weave-npc-relay as SPDX 2.3 in JSON: the Debian packages
// whose control files are in a directory, and the Go modules in a binary. The same input gives the same output.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/pkg/errors"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the document that arguments ask for.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	binary := flags.String("binary", "", "the program, as it is in the image")
	packages := flags.String("packages", "",
		"directory of the control files of Debian's packages in the image; none if it has no packages")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return write(*binary, *packages, out)
}

// write writes the document of a binary and of packages.
func write(binary, packages string, out io.Writer) error {
	built, err := buildinfo.ReadFile(binary)
	if err != nil {
		return errors.Wrapf(err, "reading what %s was built from", binary)
	}
	d := newDocument(built)
	d.add(goPackage("stdlib", strings.TrimPrefix(built.GoVersion, "go")))
	for _, m := range built.Deps {
		d.add(goModule(m, built.Main.Version))
	}
	var files []string
	if packages != "" {
		if files, err = filepath.Glob(filepath.Join(packages, "*")); err != nil {
			return errors.Wrapf(err, "looking for packages in %s", packages)
		}
	}
	if len(files) == 0 && packages != "" {
		return errors.Errorf("%s holds no packages", packages)
	}
	for _, f := range files {
		p, err := debianPackage(f)
		if err != nil {
			return err
		}
		d.add(p)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return errors.Wrap(e.Encode(d), "writing the document")
}

// document is an SPDX document (SPDX 2.3, clause 6).
type document struct {
	SPDXVersion   string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	SPDXID        string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// spdxPackage is a package (clause 7).
type spdxPackage struct {
	SPDXID       string     `json:"SPDXID"`
	Name         string     `json:"name"`
	Version      string     `json:"versionInfo,omitempty"`
	Download     string     `json:"downloadLocation"`
	Analyzed     bool       `json:"filesAnalyzed"`
	Concluded    string     `json:"licenseConcluded"`
	Declared     string     `json:"licenseDeclared"`
	Copyright    string     `json:"copyrightText"`
	ExternalRefs []external `json:"externalRefs,omitempty"`
}

// external identifies a package for vulnerability scanners.
type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// relationship relates two elements (clause 11).
type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	unknown    = "NOASSERTION"
)

// newDocument returns a document about the program itself. Its time is that of the commit, so that the output is
// reproducible.
func newDocument(built *debug.BuildInfo) *document {
	created, revision := "1970-01-01T00:00:00Z", "unreleased"
	for _, s := range built.Settings {
		switch s.Key {
		case "vcs.time":
			created = s.Value
		case "vcs.revision":
			revision = s.Value
		}
	}
	d := &document{SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID,
		Name:      path.Base(built.Main.Path),
		Namespace: "https://" + built.Main.Path + "/sbom/" + revision,
		Creation:  creation{Created: created, Creators: []string{"Tool: weave-npc-sbom"}}}
	p := goPackage(built.Main.Path, built.Main.Version)
	p.Declared = "Apache-2.0"
	d.Packages = []spdxPackage{p}
	d.Relationships = []relationship{{documentID, "DESCRIBES", p.SPDXID}}
	return d
}

// add adds a package that the first one depends on.
func (d *document) add(p spdxPackage) {
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, relationship{d.Packages[0].SPDXID, "DEPENDS_ON", p.SPDXID})
}

// notID matches characters that an SPDX identifier cannot contain.
var notID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// newPackage returns a package with a package-url locator.
func newPackage(kind, name, version, locator string) spdxPackage {
	return spdxPackage{SPDXID: "SPDXRef-" + kind + "-" + notID.ReplaceAllString(name, "-"), Name: name,
		Version: version, Download: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown,
		ExternalRefs: []external{{"PACKAGE-MANAGER", "purl", locator}}}
}

func goPackage(path, version string) spdxPackage {
	return newPackage("go", path, version, "pkg:golang/"+path+"@"+strings.ReplaceAll(version, "+", "%2B"))
}

// goModule returns the package of a module, or of what was built in its place. A folder
// is one of the same commit, whose version is given.
func goModule(m *debug.Module, version string) spdxPackage {
	switch r := m.Replace; {
	case r == nil:
		return goPackage(m.Path, m.Version)
	case strings.HasPrefix(r.Path, "."):
		return goPackage(m.Path, version)
	default:
		return goPackage(r.Path, r.Version)
	}
}

// debianPackage returns the package of a control file (deb-control(5)).
func debianPackage(file string) (spdxPackage, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return spdxPackage{}, errors.Wrap(err, "reading a package's control file")
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
			fields[name] = strings.TrimSpace(value)
		}
	}
	name, version, arch := fields["Package"], fields["Version"], fields["Architecture"]
	if name == "" || version == "" || arch == "" {
		return spdxPackage{}, errors.Errorf("%s lacks a name, a version or an architecture", file)
	}
	escaped := strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)
	return newPackage("deb", name, version, "pkg:deb/debian/"+name+"@"+escaped+"?arch="+arch), nil
}
