package span

import (
	"iter"
	mathbits "math/bits"
)

// bits is a set of small numbers.
type bits []uint64

func (b *bits) grow(words int) {
	for len(*b) < words {
		*b = append(*b, 0)
	}
}

func (b *bits) set(n int) {
	b.grow(n/64 + 1)
	(*b)[n/64] |= 1 << (n % 64)
}

func (b bits) clear(n int) {
	if n/64 < len(b) {
		b[n/64] &^= 1 << (n % 64)
	}
}

func (b bits) has(n int) bool { return n/64 < len(b) && b[n/64]&(1<<(n%64)) != 0 }

// word returns a word of the set.
func (b bits) word(i int) uint64 {
	if i < len(b) {
		return b[i]
	}
	return 0
}

// all yields the numbers in the set.
func (b bits) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range b {
			for ; w != 0; w &= w - 1 {
				if !yield(64*i + mathbits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// part is a set of numbers without its first words, which are zero.
type part struct {
	first int
	words bits
}

// add adds a word, which has a higher number than those before.
func (p *part) add(number int, word uint64) {
	switch {
	case word == 0:
		return
	case p.words == nil:
		p.first = number
	}
	p.words.grow(number - p.first + 1)
	p.words[number-p.first] = word
}

// all yields the numbers in the set.
func (p part) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := range p.words.all() {
			if !yield(64*p.first + n) {
				return
			}
		}
	}
}

// split returns the numbers that are only in after, those in both, and those only in before, from a word on.
func split(before, after bits, first int) (enters, stays, leaves part) {
	for i := first; i < max(len(before), len(after)); i++ {
		b, a := before.word(i), after.word(i)
		enters.add(i, a&^b)
		stays.add(i, a&b)
		leaves.add(i, b&^a)
	}
	return enters, stays, leaves
}
