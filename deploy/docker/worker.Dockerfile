# The worker daemon, the `cohort` command, and the health probe; no shell, no other user than 65532.
#
#   docker build -f deploy/docker/worker.Dockerfile -t cohort-worker .
#   docker build -f deploy/docker/worker.Dockerfile --target tests -t cohort-tests .
#   docker build -f deploy/docker/worker.Dockerfile --target watch -t cohort-watch .
FROM debian:12 AS build
WORKDIR /src
COPY deploy/bootstrap.sh deploy/packages.txt deploy/cuda_toolkit.py deploy/cuda_wheels.txt deploy/
# The image holds neither the driver nor NCCL.
ENV COHORT_WITHOUT_GPU=1
RUN deploy/bootstrap.sh
COPY . .
RUN bazel build --config=opt --spawn_strategy=local \
      //worker/daemon:cohort-worker //worker/cli:cohort //deploy/docker:cohort-health && \
    deploy/docker/collect_runtime.sh /runtime \
      bazel-bin/worker/daemon/cohort-worker bazel-bin/worker/cli/cohort bazel-bin/deploy/docker/cohort-health && \
    strip --strip-debug /runtime/usr/local/bin/* && \
    mkdir -p /runtime/run/cohort && \
    chown 65532:65532 /runtime/var/lib/cohort /runtime/run/cohort

# With a shell and openssl, for scripts that use `cohort` or make certificates.
FROM debian:12-slim AS tests
RUN apt-get update && apt-get install -y --no-install-recommends openssl && rm -rf /var/lib/apt/lists/* && \
    mkdir /run/cohort && chown 65532:65532 /run/cohort
COPY --from=build /runtime/usr /usr
COPY --from=build --chown=65532:65532 /runtime/var/lib/cohort /var/lib/cohort
USER 65532:65532
WORKDIR /var/lib/cohort
ENTRYPOINT ["bash"]

# With kubectl, for the commands of `cohort group watch --exec`.
FROM tests AS watch
COPY --from=registry.k8s.io/kubectl:v1.32.4 /bin/kubectl /usr/local/bin/kubectl
ENTRYPOINT ["cohort"]

FROM scratch
COPY --from=build /runtime /
USER 65532:65532
ENV PATH=/usr/local/bin
WORKDIR /var/lib/cohort
# Clients; metrics. Tensors go by ports that the system picks.
EXPOSE 7800 7801
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 \
  CMD ["cohort-health", "127.0.0.1:7800"]
ENTRYPOINT ["cohort-worker"]
# The files of a Secret; the variables are for the worker as a client of the coordinator.
ENV COHORT_TLS_CA=/etc/cohort/tls/ca.crt COHORT_TLS_CERTIFICATE=/etc/cohort/tls/tls.crt \
    COHORT_TLS_KEY=/etc/cohort/tls/tls.key
CMD ["--listen", "0.0.0.0:7800", "--tls-certificate", "/etc/cohort/tls/tls.crt", \
     "--tls-key", "/etc/cohort/tls/tls.key", "--tls-client-ca", "/etc/cohort/tls/ca.crt", \
     "--metrics-listen", "0.0.0.0:7801", "--coordinator", "coordinator:7700"]
