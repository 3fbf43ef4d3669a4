/* Prints the addresses of names as musl finds them. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list;
        int e = getaddrinfo(argv[i], 0, &hints, &list);
        if (e) {
            printf("%s: %s\n", argv[i], gai_strerror(e));
            continue;
        }
        char text[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &((struct sockaddr_in *)list->ai_addr)->sin_addr, text, sizeof text);
        printf("%s\n", text);
        freeaddrinfo(list);
    }
    return 0;
}
