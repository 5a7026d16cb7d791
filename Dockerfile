# docker build --tag gatehouse .
# docker run --read-only --env-file … --publish 3000:3000 --publish 8080:8080 --publish 8000:8000 gatehouse
# A single service: docker run … gatehouse serve identity

ARG NODE=node:22-slim@sha256:c3de60bf2f9dd0ac6370e6117950ff62d6e339527e7472301c9c78a017978392

FROM ${NODE} AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc LICENSE ./
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY scripts scripts
COPY src src
RUN npm run build \
 && node --import tsx scripts/sbom.ts > sbom.cdx.json \
 && npm ci --ignore-scripts --omit=dev --omit=optional
# What the image adds to its base: nothing that only developers read. With the same modes and times in every build, its
# digest is the same.
RUN mkdir -p /image/app /image/usr/local/bin \
 && cp -R package.json LICENSE sbom.cdx.json node_modules dist /image/app \
 && rm /image/app/node_modules/.package-lock.json \
 && find /image/app/dist \( -name '*.map' -o -name '*.d.ts' \) -delete \
 && find /image/app/node_modules -mindepth 1 -type d -empty -delete \
 && ln -s /app/dist/cli.js /image/usr/local/bin/gatehouse \
 && chmod -R u=rwX,go=rX /image \
 && chmod 755 /image/app/dist/cli.js \
 && find /image -exec touch --no-dereference --date=@0 {} +

FROM ${NODE}
# The memory of a request goes back to the kernel soon: 128 MiB are enough under attacks.
ENV NODE_ENV=production MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072
COPY --from=build /image /

ARG VERSION=0.1.0 REVISION
LABEL org.opencontainers.image.title="Gatehouse" \
      org.opencontainers.image.description="Identity, secret exchange and webhook receiver" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# The user `node` of the base image. Kubernetes can check runAsNonRoot only if the user is a number.
USER 1000:1000
EXPOSE 3000 8080 8000

# All services of a container share one process, and each has /livez: one reply shows that the process is alive.
# Not by `fetch`, which takes 84 MiB, and with the memory of the container that of the service: this takes 8 MiB.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["node", "-e", "\
const { connect } = require('node:net'); \
const { IDENTITY_PORT = 3000, SECRETS_PORT = 8080, PORT = 8000, WEBHOOK_PORT = PORT } = process.env; \
process.exitCode = 1; \
for (const port of new Set([IDENTITY_PORT, SECRETS_PORT, PORT, WEBHOOK_PORT])) { \
  const socket = connect(port, '127.0.0.1'); \
  socket.end('GET /livez HTTP/1.0\\r\\n\\r\\n'); \
  socket.on('data', (reply) => { if (String(reply).startsWith('HTTP/1.1 200 ')) process.exit(0); }); \
  socket.on('error', () => {}); \
}"]

# The exec form makes Node process 1, without a shell: it receives SIGTERM and shuts down gracefully.
ENTRYPOINT ["node", "/app/dist/cli.js"]
CMD ["serve"]
