# Builds the images from source. Requires access to the compiler's image. BuildKit caches the registry and the compiled
# crates, so a change recompiles only the crates that it affects:
#
#   docker build --target node -t faultline-node:0.1.0 .
#   docker build --target operator -t faultline-operator:0.1.0 .
#
# node-image/Dockerfile and operator/Dockerfile make the same images from programs that were built outside Docker.
FROM rust:1.89-bookworm AS build
WORKDIR /source
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/source/target,sharing=locked \
    target="$(rustc -vV | sed -n 's/^host: //p')" \
    && cargo build --release --locked --target "$target" -p faultline-node -p faultline-operator \
    && cp "target/$target/release/faultline-node" "target/$target/release/faultline-operator" /

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
