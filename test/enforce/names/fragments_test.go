package names

import (
	"bytes"
	"encoding/binary"
)

// fragments returns a packet in two fragments. The first one ends behind a short name's question.
func fragments(packet []byte, id uint32) (out [2][]byte) {
	const first, moreIPv4, moreIPv6 = 40, 1 << 13, 1
	six := packet[0]>>4 == 6
	size := 20
	if six {
		size = 40
	}
	for i, part := range [][]byte{packet[size : size+first], packet[size+first:]} {
		header := bytes.Clone(packet[:size])
		offset, more := i*first/8, 1-i
		if six {
			header[6] = 44
			binary.BigEndian.PutUint16(header[4:], uint16(8+len(part)))
			header = append(header, 17, 0)
			header = binary.BigEndian.AppendUint16(header, uint16(offset<<3|more*moreIPv6))
			header = binary.BigEndian.AppendUint32(header, id)
		} else {
			binary.BigEndian.PutUint16(header[2:], uint16(size+len(part)))
			binary.BigEndian.PutUint16(header[4:], uint16(id))
			binary.BigEndian.PutUint16(header[6:], uint16(offset|more*moreIPv4))
			binary.BigEndian.PutUint16(header[10:], 0)
			binary.BigEndian.PutUint16(header[10:], checksum(header))
		}
		out[i] = append(header, part...)
	}
	return out
}

// checksum returns the checksum of an IPv4 header.
func checksum(header []byte) uint16 {
	var sum uint32
	for ; len(header) > 1; header = header[2:] {
		sum += uint32(binary.BigEndian.Uint16(header))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// balanced changes the last bytes of a packet that differs from another in one byte, so that both have one checksum.
func balanced(honest, forged []byte) []byte {
	out := bytes.Clone(forged)
	for i := range honest {
		if honest[i] != forged[i] {
			at := len(out) - 2 + (i+len(out))%2
			out[at] -= forged[i] - honest[i]
			return out
		}
	}
	return out
}
