package ports

import "slices"

// Table is the part of the tables that guards the ports of pods without binding sources.
type Table struct {
	AllowVLAN bool
}

// Ports returns the indexes of the guarded ports, sorted. whole is false if the tables are not as Guard writes them.
func (t Table) Ports() (ports []int, whole bool, err error) {
	s, whole, err := Read()
	return s.Bridged, whole && s.Mode == Off && s.AllowVLAN == t.AllowVLAN && !s.OnlyTypes, err
}

// Guard guards these ports.
func (t Table) Guard(ports []int) error {
	have, whole, err := Read()
	if err != nil {
		return err
	}
	return Write(have, State{AllowVLAN: t.AllowVLAN, Bridged: slices.Clone(ports)}, whole)
}
