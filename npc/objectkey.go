package npc

// ObjectKey returns the key of an object, in one spelling for maps, log lines and texts, so that a key from one place
// finds the object in another. Keys of objects of different kinds are equal if the names are.
func ObjectKey(namespace, name string) string { return namespace + "/" + name }
