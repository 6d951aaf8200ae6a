# The image of a release: the command, and the certificates that it needs for a store with
# TLS. It has no shell and no other program, so "locker run" has nothing to run in it. Copy
# the command into an image of yours:
#
#   COPY --from=ghcr.io/lockstile/locker:VERSION /locker /usr/local/bin/locker
#
# It has no /tmp either, so "local:" without a directory is an error: locks in a container's
# own files exclude nobody outside it. Mount a directory of the host and be its owner:
#
#   docker run --user "$(id -u)" -v /run/app:/run/app ghcr.io/lockstile/locker inspect -b local:/run/app NAME
#
# A URL of PostgreSQL names its user, for there is none here whose name it could take. A
# certificate authority of your own goes into SSL_CERT_FILE, or where the public ones are.
FROM --platform=$BUILDPLATFORM alpine:3.22 AS certificates
RUN apk add --no-cache ca-certificates

FROM scratch
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY $TARGETPLATFORM/locker /locker
USER 65532:65532
ENTRYPOINT ["/locker"]
