# The coordinator, the `cohort` command for operators, and the health probe; no shell, no other user than 65532.
#
#   docker build -f deploy/docker/coordinator.Dockerfile -t cohort-coordinator .
FROM debian:12 AS build
WORKDIR /src
COPY deploy/bootstrap.sh deploy/packages.txt deploy/cuda_toolkit.py deploy/cuda_wheels.txt deploy/
ENV COHORT_WITHOUT_GPU=1
RUN deploy/bootstrap.sh
COPY . .
RUN bazel build --config=opt --spawn_strategy=local \
      //coordinator:cohort-coordinator //worker/cli:cohort //deploy/docker:cohort-health && \
    deploy/docker/collect_runtime.sh /runtime \
      bazel-bin/coordinator/cohort-coordinator bazel-bin/worker/cli/cohort bazel-bin/deploy/docker/cohort-health && \
    strip --strip-debug /runtime/usr/local/bin/* && \
    chown 65532:65532 /runtime/var/lib/cohort

FROM scratch
COPY --from=build /runtime /
USER 65532:65532
ENV PATH=/usr/local/bin
WORKDIR /var/lib/cohort
VOLUME /var/lib/cohort
# Groups; metrics.
EXPOSE 7700 7701
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 \
  CMD ["cohort-health", "127.0.0.1:7700"]
ENTRYPOINT ["cohort-coordinator"]
# The files of a Secret.
CMD ["--listen", "0.0.0.0:7700", "--tls-certificate", "/etc/cohort/tls/tls.crt", \
     "--tls-key", "/etc/cohort/tls/tls.key", "--tls-client-ca", "/etc/cohort/tls/ca.crt", \
     "--metrics-listen", "0.0.0.0:7701", \
     "--journal", "sqlite", "--journal-path", "/var/lib/cohort/journal.db"]
