import express from 'express';
import session from 'express-session';
import passport from 'passport';
import { Strategy } from 'passport-openidconnect';
import {
  askUserinfo,
  CALLBACK,
  CLIENT_ID,
  CLIENT_SECRET,
  ISSUER,
  logoutAddress,
  PORT,
  SCOPE,
} from './party.mjs';

const settings = {
  issuer: ISSUER,
  authorizationURL: `${ISSUER}/oidc/authorize`,
  tokenURL: `${ISSUER}/oidc/token`,
  userInfoURL: `${ISSUER}/oidc/userinfo`,
  clientID: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
  callbackURL: CALLBACK,
  scope: SCOPE.replace('openid ', ''),
};
passport.use(
  'gatehouse',
  new Strategy(settings, (_issuer, profile, _context, idToken, accessToken, _refresh, done) =>
    done(null, { profile, idToken, accessToken }),
  ),
);
passport.serializeUser((user, done) => done(null, user));
passport.deserializeUser((user, done) => done(null, user));

express()
  .use(session({ secret: 'not a secret', resave: false, saveUninitialized: false }))
  .use(passport.session())
  .get('/login', passport.authenticate('gatehouse'))
  .get('/callback', passport.authenticate('gatehouse', { successRedirect: '/' }))
  .get('/', async ({ user }, response) => {
    const claims = await askUserinfo(user.accessToken);
    response.json({ ...claims, name: user.profile.displayName });
  })
  .get('/logout', ({ user }, response) => response.redirect(logoutAddress(user.idToken)))
  .get('/out', (_request, response) => response.json({}))
  .use((error, _request, response, _next) => response.status(401).send(error.stack))
  .listen(PORT, '127.0.0.1');
