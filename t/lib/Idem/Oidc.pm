package Idem::Oidc;

# Real OpenID Providers on loopback: npm's oidc-provider, several issuers (see t/lib/oidc-provider.js).

use strict;
use warnings;
use HTTP::Tiny;
use Idem::Util;
use JSON::PP ();

# new(redirect_uri => URL of httpd, accounts => { name => { claims } }, issuers => 2)
sub new {
    my ($class, %arg) = @_;
    my $self = bless { issuers => 2, %arg, root => own_folder('oidc') }, $class;
    needed(source_dir() . '/t/node_modules/oidc-provider/package.json');
    $self->{ports} = [ map { free_port() } 1 .. $self->{issuers} ];
    $self->accounts(%{ $self->{accounts} });
    $self->login((sort keys %{ $self->{accounts} })[0]);
    # as the account that runs the tests: it reads the npm packages where they lie
    $self->{pid} = spawn(self => 1, cmd => [ 'node', source_dir() . '/t/lib/oidc-provider.js', $self->{root}, $self->{redirect_uri}, @{ $self->{ports} } ],
        dir => source_dir() . '/t', out => "$self->{root}/log", env => { NODE_NO_WARNINGS => 1, NODE_PATH => source_dir() . '/t/node_modules' });
    at_end(sub { end_process($self->{pid}, 'TERM') });
    wait_for(sub { -e "$self->{root}/ready" || !alive($self->{pid}) }, 30) && alive($self->{pid})
        or die "the OpenID Provider does not start:\n" . tail("$self->{root}/log", 20);
    return $self;
}

# What is true of the accounts from now on: name => { claims }. Those that new() did not get cannot have tokens.
sub accounts {
    my ($self, %change) = @_;
    $self->{accounts} = { %{ $self->{accounts} }, %change };
    spew("$self->{root}/accounts.new", JSON::PP->new->utf8->encode($self->{accounts}), 0644);
    rename "$self->{root}/accounts.new", "$self->{root}/accounts.json" or die "accounts: $!\n";
}

# Whom the next login page logs in.
sub login { my ($self, $account) = @_; spew("$self->{root}/login", $account, 0644) }

sub issuer { my ($self, $number) = @_; return 'http://127.0.0.1:' . $self->{ports}[ ($number // 1) - 1 ] }
sub log { -e "$_[0]{root}/log" ? slurp("$_[0]{root}/log") : '' }

# kid#file of every issuer's public key, as OIDCOAuthVerifyCertFiles takes them.
sub keys { my ($self) = @_; return map { "issuer-$_#$self->{root}/$_.pem" } 1 .. $self->{issuers} }

# A new access token (a JWT) of an account, as a header for a request.
sub token {
    my ($self, $account, $issuer) = @_;
    my $response = HTTP::Tiny->new(timeout => 20)->post_form($self->issuer($issuer) . '/token',
        { grant_type => 'client_credentials', client_id => $account, client_secret => 'secret', scope => 'api' });
    my $token = eval { JSON::PP->new->utf8->decode($response->{content})->{access_token} };
    die "no token for $account: $response->{status} $response->{content}\n" . $self->log unless $token;
    return $token;
}

sub bearer { my ($self, @who) = @_; return (Authorization => 'Bearer ' . $self->token(@who)) }

1;
