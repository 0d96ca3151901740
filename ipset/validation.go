package ipset

import (
	"net/netip"
	"strings"

	"github.com/pkg/errors"
)

// check returns an error if the kernel cannot take the operation.
func (o *Op) check() error {
	if err := checkName(o.Set.Name); err != nil {
		return err
	}
	switch o.Kind {
	case Flush, Destroy:
		return nil
	case Create, Add, Delete:
	default:
		return errors.Errorf("unknown operation %s", o.Kind)
	}
	if _, ok := o.Set.Type.revision(); !ok {
		return errors.Wrapf(ErrUnsupported, "set type %q", string(o.Set.Type))
	}
	if o.Set.Type != ListSet && o.Set.Family != IPv4 && o.Set.Family != IPv6 {
		return errors.Wrapf(ErrUnsupported, "family %s", o.Set.Family)
	}
	return nil
}

// checkName returns an error if a set cannot have the name. The kernel takes an empty name for all sets.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return errors.Errorf("set name %q is not 1 to %d bytes without NUL", name, maxName)
	}
	return nil
}

// check returns an error if the set cannot hold the element.
func (e *Element) check(kind OpKind, set Set) error {
	if err := e.Entry.check(set); err != nil {
		return err
	}
	switch {
	case kind == Delete:
		return nil
	case e.NoMatch && set.Type != HashNet:
		return errors.Errorf("%s does not support nomatch", set.Type)
	case e.Timeout > 0 && (set.Timeout == 0 || set.Type == ListSet):
		return errors.New("the set has no timeout")
	case e.Timeout > maxTimeout:
		return errors.Errorf("timeout of %d s is longer than %d s", e.Timeout, maxTimeout)
	case len(e.Comment) > maxComment:
		return errors.Errorf("comment of %d bytes is longer than %d", len(e.Comment), maxComment)
	case strings.ContainsRune(e.Comment, 0):
		return errors.New("comment contains NUL")
	}
	return nil
}

func (e Entry) check(set Set) error {
	if set.Type == ListSet {
		if e.Prefix != (netip.Prefix{}) || e.Proto != 0 || e.Port != 0 {
			return errors.New("a list of sets holds names only")
		}
		return checkName(e.Set)
	}
	ip := e.Prefix.Addr()
	switch {
	case e.Set != "":
		return errors.Errorf("%s holds no sets", set.Type)
	case !e.Prefix.IsValid() || ip.Is4In6():
		return errors.New("address is not valid")
	case ip.Is4() != (set.Family == IPv4):
		return errors.Errorf("address is not of family %s", set.Family)
	case set.Type != HashIPPort && (e.Proto != 0 || e.Port != 0):
		return errors.Errorf("%s holds no ports", set.Type)
	}
	switch set.Type {
	case HashNet:
		if e.Prefix.Bits() == 0 {
			return errors.New("hash:net holds no network of prefix length 0: use its two halves")
		}
		if e.Prefix != e.Prefix.Masked() {
			return errors.New("network has host bits")
		}
	case HashIP, HashIPPort:
		if !e.Prefix.IsSingleIP() {
			return errors.Errorf("%s holds single addresses only", set.Type)
		}
		if _, ported := protocol(e.Proto); set.Type == HashIPPort && !ported {
			return errors.Errorf("protocol %d has no ports", e.Proto)
		}
	}
	return nil
}
