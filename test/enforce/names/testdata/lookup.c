/* lookup looks names up by the C library's resolver, one after the other, and connects to each address at once:
 *
 *     lookup PORT MILLISECONDS NAME...
 *
 * It prints a line for each address, "NAME ADDRESS" or "NAME ADDRESS: ERROR", or "NAME: ERROR". */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void dial(const char *name, const struct addrinfo *a, struct timeval limit) {
  int fd = socket(a->ai_family, SOCK_STREAM, 0);
  char text[64] = "?";

  getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
      connect(fd, a->ai_addr, a->ai_addrlen) < 0)
    printf("%s %s: %s\n", name, text, strerror(errno));
  else
    printf("%s %s\n", name, text);
  close(fd);
}

int main(int argc, char **argv) {
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *all;
  struct timeval limit;
  int i, error;

  if (argc < 4)
    return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  limit.tv_sec = atol(argv[2]) / 1000;
  limit.tv_usec = atol(argv[2]) % 1000 * 1000;
  for (i = 3; i < argc; i++) {
    if ((error = getaddrinfo(argv[i], argv[1], &hints, &all)) != 0) {
      printf("%s: %s\n", argv[i], gai_strerror(error));
      continue;
    }
    for (; all != NULL; all = all->ai_next)
      dial(argv[i], all, limit);
  }
  return 0;
}
