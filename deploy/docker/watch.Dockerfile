# The image `cohort-tests` with kubectl, for the commands of `cohort group watch --exec`. It has a file of its own because
# kubectl's image comes from another registry, which Docker's classic builder would ask for each target of a file.
#
#   docker build -f deploy/docker/watch.Dockerfile -t cohort-watch deploy/docker
FROM cohort-tests
LABEL org.opencontainers.image.title="cohort-watch"
COPY --from=registry.k8s.io/kubectl:v1.32.4 /bin/kubectl /usr/local/bin/kubectl
ENTRYPOINT ["cohort"]
