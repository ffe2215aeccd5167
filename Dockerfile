# Builds the images from source. Requires access to the compiler's image. Docker caches the compiled dependencies in a
# layer, so a change to the sources recompiles only the crates of this repository:
#
#   docker build --target node -t faultline-node:0.1.0 .
#   docker build --target operator -t faultline-operator:0.1.0 .
#   docker build --target faultline -t faultline:0.1.0 .
#
# node-image/Dockerfile, operator/Dockerfile and crates/cli/Dockerfile build the same images from programs that were
# compiled outside Docker.
FROM rust:1.89-bookworm AS compiler
WORKDIR /source
ENV RUSTFLAGS="-C target-feature=+crt-static"

# Reduces the sources to what determines the dependencies: the manifests, the lock file, and each file that is the root
# of a library or program, with an empty `main` as its only content.
FROM compiler AS manifests
COPY . .
RUN members="crates node-image operator e2e" \
    && roots=$(find $members -regextype egrep -regex '.*/(lib|main)\.rs|.*/(bin|benches)/[^/]*\.rs') \
    && mkdir /skeleton \
    && cp --parents Cargo.toml Cargo.lock .cargo/config.toml $(find $members -name Cargo.toml) $roots /skeleton \
    && cd /skeleton \
    && for root in $roots; do echo '#![allow(warnings)] fn main() {}' >"$root" || exit; done

# Compiles the dependencies. Here, the repository's own crates (`faultline…`) are compiled from these empty files. Because
# their fingerprints are then deleted, Cargo compiles the crates again later, even if their sources are older than this
# layer.
FROM compiler AS dependencies
COPY --from=manifests /skeleton .
RUN target=$(rustc --print host-tuple) \
    && cargo build --release --locked --target "$target" -p faultline-node -p faultline-operator -p faultline-cli \
    && find target -path '*/.fingerprint/faultline*' -prune -exec rm -r {} +

FROM dependencies AS build
COPY . .
RUN target=$(rustc --print host-tuple) \
    && cargo build --release --locked --target "$target" -p faultline-node -p faultline-operator -p faultline-cli \
    && cd "target/$target/release" && cp faultline-node faultline-operator faultline /

FROM scratch AS operator
LABEL org.opencontainers.image.title="faultline-operator" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /faultline-operator /faultline-operator
USER 65532:65532
ENTRYPOINT ["/faultline-operator"]

FROM scratch AS node
LABEL org.opencontainers.image.title="faultline-node" \
      org.opencontainers.image.description="Agent, process and supervisor of a Faultline federation" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /faultline-node /faultline-node
USER 65532:65532
ENTRYPOINT ["/faultline-node"]

FROM scratch AS faultline
LABEL org.opencontainers.image.title="faultline" \
      org.opencontainers.image.description="Performs the runs of Faultline's campaigns" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /faultline /faultline
USER 65532:65532
ENTRYPOINT ["/faultline"]
