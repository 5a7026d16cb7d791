# docker build --tag gatehouse .
# docker run --read-only --env-file … --publish 3000:3000 --publish 8080:8080 --publish 8000:8000 gatehouse
# A single service: docker run … gatehouse serve identity

ARG NODE=node:22-slim

FROM ${NODE} AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY scripts/tsconfig.build.json scripts/
COPY src src
RUN npm run build \
 && npm ci --ignore-scripts --omit=dev --omit=optional
# What the image adds to its base. With the same modes and times in every build, its digest is the same.
RUN mkdir -p /image/app /image/usr/local/bin \
 && cp -R package.json node_modules dist /image/app \
 && rm /image/app/node_modules/.package-lock.json \
 && find /image/app/node_modules -mindepth 1 -type d -empty -delete \
 && ln -s /app/dist/cli.js /image/usr/local/bin/gatehouse \
 && chmod -R u=rwX,go=rX /image \
 && chmod 755 /image/app/dist/cli.js \
 && find /image -exec touch --no-dereference --date=@0 {} +

FROM ${NODE}
ENV NODE_ENV=production
COPY --from=build /image /

# The user `node` of the base image. Kubernetes can check runAsNonRoot only if the user is a number.
USER 1000:1000
EXPOSE 3000 8080 8000

# All services of a container share one process, and each has /livez: one reply shows that the process is alive.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["node", "-e", "\
const { IDENTITY_PORT = 3000, SECRETS_PORT = 8080, PORT = 8000, WEBHOOK_PORT = PORT } = process.env; \
const probes = [IDENTITY_PORT, SECRETS_PORT, PORT, WEBHOOK_PORT].map(async (port) => { \
  const reply = await fetch(`http://127.0.0.1:${port}/livez`); \
  if (reply.status !== 200) throw reply.status; \
}); \
Promise.any(probes).then(() => process.exit(0), () => process.exit(1));"]

# The exec form makes Node process 1, without a shell: it receives SIGTERM and shuts down gracefully.
ENTRYPOINT ["node", "/app/dist/cli.js"]
CMD ["serve"]
